package daemon

import (
	"fmt"

	"rouse/cmd/internal/api"
)

// enoughFiles is how many files and connections a daemon with some runs, databases and watches has open at
// a time, with room. With fewer, commands do not start and, at worst, its owner does not get through to it.
const enoughFiles = 256

// tooFewFiles says what to do where too few files may be open, "" where it is enough or not known.
func tooFewFiles() string {
	if limit, known := maxOpenFiles(); known && limit < enoughFiles {
		return fmt.Sprintf("this process may have %d files open at a time, and a daemon with some runs needs %d: commands, databases and connections of yours will fail with “too many open files”; "+
			"raise the limit where it is started (ulimit -n 1024, or LimitNOFILE=1024 in its unit)", limit, enoughFiles)
	}
	return ""
}

func checkOpenFiles() api.Check {
	c := api.Check{Name: "open files", OK: true, Detail: "enough may be open at a time"}
	if why := tooFewFiles(); why != "" {
		c.OK, c.Detail, c.Remedy = false, why, "ulimit -n 1024"
	}
	return c
}
