"""What one does with a formula: read and rename it, drop and order terms, ask what dominates, compile it for arrays."""
