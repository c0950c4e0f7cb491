package mountinfo_test

import (
	"fmt"

	"github.com/forerunner-build/forerunner/mountinfo"
)

// Parse is Read of a table that is there already. Spaces in names are escaped in it.
func ExampleParse() {
	const table = `21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 21 0:44 / /mnt/my\040build rw,nosuid shared:7 - fuse.files files rw,user_id=0
`
	for _, m := range mountinfo.Parse(table) {
		fmt.Printf("%s at %q, device %s\n", m.Type, m.Point, m.Device)
	}
	// Output:
	// ext4 at "/", device 8:1
	// fuse.files at "/mnt/my build", device 0:44
}
