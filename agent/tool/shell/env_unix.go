//go:build unix

package shell

import (
	"os"
	"runtime"
)

// searchPath is where programs are looked for: the folders of the system, and never those of the
// daemon's own environment.
func searchPath() string {
	const system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if runtime.GOOS == "darwin" {
		return "/opt/homebrew/bin:" + system
	}
	return system
}

// environment is all that a command is given: nothing of the daemon's but language and zone.
func environment(home, temp string) []string {
	env := []string{"PATH=" + searchPath(), "HOME=" + home, "TMPDIR=" + temp}
	for _, name := range []string{"LANG", "TZ"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
