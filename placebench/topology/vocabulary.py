"""Which names of resource classes and traits a topology may use: Placement's standard ones, or CUSTOM_ ones.

Source of the standard classes: os-resource-classes 1.1.0. Of the standard traits only the namespaces are known here:
a server that is loaded through its API says itself which it has.
"""

import re

from placebench.topology.section import Form

STANDARD_CLASSES = (
    "VCPU",
    "MEMORY_MB",
    "DISK_GB",
    "PCI_DEVICE",
    "SRIOV_NET_VF",
    "NUMA_SOCKET",
    "NUMA_CORE",
    "NUMA_THREAD",
    "NUMA_MEMORY_MB",
    "IPV4_ADDRESS",
    "VGPU",
    "VGPU_DISPLAY_HEAD",
    "NET_BW_EGR_KILOBIT_PER_SEC",
    "NET_BW_IGR_KILOBIT_PER_SEC",
    "PCPU",
    "MEM_ENCRYPTION_CONTEXT",
    "FPGA",
    "PGPU",
    "NET_PACKET_RATE_KILOPACKET_PER_SEC",
    "NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC",
    "NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC",
)

_CUSTOM = "CUSTOM_[A-Z0-9_]{1,248}"

CLASS = Form(f"{_CUSTOM}|{'|'.join(STANDARD_CLASSES)}", "a standard resource class or CUSTOM_[A-Z0-9_]+")
TRAIT = Form(
    f"{_CUSTOM}|(COMPUTE|HW|MISC|OWNER|STORAGE)_[A-Z0-9_]{{1,240}}",
    "a standard trait (COMPUTE_…, HW_…, MISC_…, OWNER_…, STORAGE_…) or CUSTOM_[A-Z0-9_]+",
)


def is_standard(name: str) -> bool:
    """Whether the class or trait is one that a topology may name and that users do not make."""
    known = re.fullmatch(CLASS.pattern, name) or re.fullmatch(TRAIT.pattern, name)
    return bool(known) and not is_custom(name)


def is_custom(name: str) -> bool:
    """Whether the class or trait is one that users make, and not one that every server has."""
    return name.startswith("CUSTOM_")
