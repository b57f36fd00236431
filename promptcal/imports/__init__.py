"""What other programs left behind: their checkpoints and few-shot draws, read without running anything of theirs."""
