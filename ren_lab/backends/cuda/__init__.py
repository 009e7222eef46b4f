"""The CUDA backend: kernels are rendered to CUDA C++, compiled by NVRTC and launched through CuPy."""
