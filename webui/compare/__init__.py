"""Two or more runs side by side, a sweep as a chart, ours beside the paper's. Has no tables of its own."""
