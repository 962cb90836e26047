package schedule

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// MachineZone returns the current time zone of this machine, and whether it can change while the process
// runs. Package time reads the zone only once per process. TZ in the environment replaces /etc/localtime:
// a name is fixed, while a path is a file that can change.
func MachineZone() (zone *time.Location, changes bool) {
	file, set := os.LookupEnv("TZ")
	file = strings.TrimPrefix(file, ":")
	switch {
	case runtime.GOOS == "windows", set && !filepath.IsAbs(file):
		return time.Local, false
	case !set:
		file = "/etc/localtime"
	}

	target, _ := os.Readlink(file) // fails if the file is a copy, which has no zone name
	if _, name, ok := strings.Cut(target, "zoneinfo/"); ok {
		if zone, err := Zone(name); err == nil {
			return zone, true
		}
	}

	data, err := os.ReadFile(file)
	if err != nil {
		return time.UTC, true // like package time
	}
	zones.Lock()
	defer zones.Unlock()
	if zone = zones.byName[string(data)]; zone != nil {
		return zone, true
	}
	if zone, err = time.LoadLocationFromTZData("Local", data); err != nil {
		return time.UTC, true
	}
	zones.byName[string(data)] = zone
	return zone, true
}
