"""What a site would save, from its accounting alone: nothing is installed, stored or changed.

:mod:`~advisor.prospect.usage` sums up what jobs used, :mod:`~advisor.prospect.estimate` says what
caps and fewer threads would save of it, each as a share of uncertainty.
"""
