"""Fonts for the labels of figures in Chinese, cut out of Noto Sans CJK (SIL Open Font License 1.1)."""
