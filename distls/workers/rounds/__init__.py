"""The parts of every round: streams of blocks, lanes, the reduction tree."""
