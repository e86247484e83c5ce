"""CLIP and SigLIP models with random weights, small enough to save in a test."""

from __future__ import annotations

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
