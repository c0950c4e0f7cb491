package names

// MountSource is the source, as in /proc/self/mountinfo, of all mounts of a worker except those of
// images. With it a launcher finds the input roots that it must release.
const MountSource = "forerunner"

// ReadyRoot begins the names of the folders of input roots that a worker mounts before an action
// needs them.
const ReadyRoot = ".ready-"
