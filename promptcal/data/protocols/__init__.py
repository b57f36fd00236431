"""Protocols: one file = one way to say, from one task or several, what is trained on and what is tested."""

from promptcal.data.protocols.contract import Draw, Splits, drawn, reader_of_targets, whole_task

__all__ = ["Draw", "Splits", "drawn", "reader_of_targets", "whole_task"]
