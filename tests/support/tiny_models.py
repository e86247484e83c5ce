"""Joint models with random weights, small enough to save in a test, each written by its own library."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers

SENTENCES = ["a dog runs", "two people are talking about the weather in a kitchen", "snow", ""]


def word_tokenizer(folder: Path, pad: str, longest: int) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["<unk>", "<s>", "</s>", "<pad>", *sorted({w for s in SENTENCES for w in s.split()})]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token=pad,
        model_max_length=longest,
    ).save_pretrained(folder)


def tiny_clip(folder: Path, seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    parts = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config={**parts, "vocab_size": 40, "max_position_embeddings": 20, "eos_token_id": 2},
        vision_config={**parts, "image_size": 32, "patch_size": 16},
        projection_dim=12,
    )
    model = transformers.CLIPModel(config).eval()
    model.save_pretrained(folder)
    word_tokenizer(folder, "<pad>", 20)
    size = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    CLIPImageProcessorPil(**size).save_pretrained(folder)
    return model


def tiny_siglip(folder: Path) -> torch.nn.Module:
    torch.manual_seed(0)
    parts = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.SiglipConfig(
        text_config={**parts, "vocab_size": 40, "max_position_embeddings": 20, "projection_size": 16},
        vision_config={**parts, "image_size": 32, "patch_size": 16},
    )
    model = transformers.SiglipModel(config).eval()
    model.save_pretrained(folder)
    word_tokenizer(folder, "</s>", 20)
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    SiglipImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    return model


PARTS = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}


def clip_processor(folder: Path) -> None:
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    size = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    CLIPImageProcessorPil(**size).save_pretrained(folder)


def tiny_metaclip(folder: Path) -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.MetaClip2Config(
        text_config={**PARTS, "vocab_size": 40, "max_position_embeddings": 20, "eos_token_id": 2},
        vision_config={**PARTS, "image_size": 32, "patch_size": 16},
        projection_dim=12,
    )
    model = transformers.MetaClip2Model(config).eval()
    model.save_pretrained(folder)
    word_tokenizer(folder, "<pad>", 20)
    clip_processor(folder)
    return model


def tiny_xclip(folder: Path, window: int = 4) -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.XCLIPConfig(
        text_config={**PARTS, "vocab_size": 40, "max_position_embeddings": 20},
        vision_config={
            **PARTS, "image_size": 32, "patch_size": 16, "num_frames": window, "mit_hidden_size": 12,
            "mit_intermediate_size": 24, "mit_num_hidden_layers": 1, "mit_num_attention_heads": 2,
        },
        projection_dim=12, prompt_layers=1, prompt_num_attention_heads=2,
    )  # fmt: skip
    model = transformers.XCLIPModel(config).eval()
    model.save_pretrained(folder)
    word_tokenizer(folder, "<pad>", 20)
    clip_processor(folder)
    return model


def tiny_videoprism(folder: Path, window: int = 4) -> torch.nn.Module:
    torch.manual_seed(0)
    few = {"num_spatial_layers": 1, "num_temporal_layers": 1, "num_auxiliary_layers": 1}
    heads = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2}
    config = transformers.VideoPrismConfig(
        text_config={**heads, "num_hidden_layers": 2, "vocab_size": 40, "max_position_embeddings": 20},
        vision_config={**heads, **few, "image_size": 32, "num_frames": window, "tubelet_size": [1, 16, 16]},
    )
    model = transformers.VideoPrismClipModel(config).eval()
    model.save_pretrained(folder)
    word_tokenizer(folder, "<pad>", 20)
    wanted = {"size": {"height": 32, "width": 32}, "do_normalize": False, "rescale_factor": 1 / 255}
    (folder / "video_preprocessor_config.json").write_text(json.dumps(wanted))
    return model


def tiny_open_clip(folder: Path, seed: int = 0) -> None:
    import open_clip
    from safetensors.torch import save_file

    torch.manual_seed(seed)
    vision = {"image_size": 32, "layers": 2, "width": 16, "head_width": 8, "patch_size": 16}
    text = {"context_length": 20, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2}
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {"model_cfg": {"embed_dim": 12, "vision_cfg": vision, "text_cfg": text}, "preprocess_cfg": {}}
    (folder / "open_clip_config.json").write_text(json.dumps(wanted))
    weights = open_clip.create_model(f"local-dir:{folder}").state_dict()
    save_file({n: t.contiguous() for n, t in weights.items()}, folder / "open_clip_model.safetensors")


def tiny_sentence_transformers(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Transformer

    tiny_clip(folder / "clip")
    SentenceTransformer(modules=[Transformer(str(folder / "clip"))]).save_pretrained(str(folder))
