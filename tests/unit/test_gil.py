"""The GIL is released for calls that can block, and for all calls if other threads may need it."""

import textwrap

# A kernel that runs for 100 ms, then a callback, then more work than the driver's queues have room
# for. The call that finds the queues full must release the GIL, so that the callback can run.
FULL_QUEUES = """
    import ctypes
    import cudadrv as cu

    PTX = '''
    .version 6.4
    .target sm_52
    .address_size 64
    .visible .entry pause()
    {
        .reg .u64 %now, %end;
        .reg .pred %early;
        mov.u64 %end, %globaltimer;
        add.u64 %end, %end, 100000000;
    again:
        mov.u64 %now, %globaltimer;
        setp.lt.u64 %early, %now, %end;
        @%early bra again;
        ret;
    }
    '''
    library = ctypes.CDLL(cu.driver_info().path)
    before, stream, event = cu.Stream(), cu.Stream(), cu.Event()
    host, device, other = cu.LockedBuffer.zeros(64), cu.DeviceBuffer(64), cu.DeviceBuffer(64)
    kernel = cu.Module(PTX)["pause"]
    ran = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def callback(_):
        ran.append(device.borrowed)  # asks the engine during a driver call

    for queue in QUEUES:
        handle = ctypes.c_void_p(before.handle)
        kernel.launch(1, 1, stream=before)
        assert library.cuLaunchHostFunc(handle, callback, None) == 0
        stream.wait(before)
        for _ in range(3000):
            queue()
        stream.synchronize()
    print(len(ran))
"""


def test_a_full_queue_lets_a_callback_run(script):
    queues = "(lambda: device.copy_from_async(host, stream), lambda: stream.record(event), "
    queues += "lambda: stream.wait(stream.record(event)), lambda: device.fill_async(0, stream), "
    queues += "lambda: (other.copy_from_async(device, stream), stream.record(event)), "
    queues += "lambda: (device.copy_to_async(host, stream), stream.wait(event)))"
    program = textwrap.dedent(FULL_QUEUES).replace("QUEUES", queues)
    assert script.quiet(program) == "6\n"
