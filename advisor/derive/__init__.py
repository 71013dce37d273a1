"""Models that follow from others: by transfer, of families of sizes, of applications never swept.

A transaction of the store only marks what has to be worked out again (``advisor/store/stale.py``).
Here it is worked out after the commit, from one moment's view of the store, while others write.
"""
