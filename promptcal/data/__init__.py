"""From a data card to the images a run sees: cards, readers, draws, halves, views and the feature cache."""

from promptcal.data.cards import Card, load_task, read_card, size_warnings
from promptcal.data.checks import check_images
from promptcal.data.splits import base_novel, few_shot
from promptcal.data.task_record import task_digest, task_record

__all__ = [
    "Card",
    "base_novel",
    "check_images",
    "few_shot",
    "load_task",
    "read_card",
    "size_warnings",
    "task_digest",
    "task_record",
]
