"""The beginning of a program, as text, that calls the driver through ctypes and not by cudadrv."""

DRIVER_CALLS = """\
driver = ctypes.CDLL("libcuda.so.1")

def call(name, *arguments):
    status = getattr(driver, name)(*arguments)
    assert status == 0, (name, status)

def made(name, *arguments):
    found = ctypes.c_uint64()
    call(name, ctypes.byref(found), *arguments)
    return found

call("cuInit", 0)
call("cuCtxSetCurrent", made("cuDevicePrimaryCtxRetain", 0))
"""
