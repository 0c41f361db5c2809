"""Rules about the source itself: sizes, public names, where SQL may stand."""
