"""What every round is made of: streams of blocks, lanes, the reduction tree."""
