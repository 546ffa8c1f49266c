"""How the bundled model is made: corpus, tokenizer, net, training, export, checks. Not part of the package."""
