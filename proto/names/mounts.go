package names

// MountSource is the source, as /proc/self/mountinfo shows it, of all mounts of a worker but
// those of images. By it a launcher knows the input roots that it must let go of.
const MountSource = "forerunner"
