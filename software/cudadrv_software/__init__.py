"""cudadrv's software driver, a libcuda.so.1 that needs no GPU: ``python -m cudadrv_software``."""
