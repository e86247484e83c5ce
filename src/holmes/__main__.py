from holmes.cli.main import main

main()
