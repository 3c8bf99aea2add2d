"""Errors of kernels on one of two devices."""

import pytest

pytestmark = pytest.mark.cuda_software


def test_only_the_device_of_the_kernel_tells_of_it(machine):
    machine(
        "devices=2,kernel_faults=record",
        '''
        PTX = """
        .version 8.0
        .target sm_80
        .address_size 64
        .visible .entry fail() { .reg .b64 %rd<2>; ld.global.u64 %rd1, [64]; ret; }
        """
        cu.Module(PTX, device=one)["fail"].launch(1, 1, stream=far)
        kernel = refused(cu.ContextLostError, "kernel 'fail'", far.synchronize)
        assert "queued at" in kernel.partition("The context is lost")[0]
        testing.fail("cuMemAlloc_v2", 700)
        other = refused(cu.ContextLostError, "The context is lost",
                        lambda: cu.DeviceBuffer(1 << 20, pooled=False, device=zero))
        assert "kernel 'fail'" not in other
        ''',
        tail="",
    )
