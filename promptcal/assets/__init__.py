"""Files that ship with promptcal."""
