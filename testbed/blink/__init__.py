"""Blink (arXiv 2604.07609): the ring, its DPU front end, the GPU-resident scheduler and the device they run on."""
