//go:build unix

package shell

import (
	"os"
	"runtime"
)

// searchPath is the PATH of commands: the folders of the system, never those of the daemon's environment.
func searchPath() string {
	const system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if runtime.GOOS == "darwin" {
		return "/opt/homebrew/bin:" + system
	}
	return system
}

// environment is the whole environment of a command. Of the daemon's it has only language and time zone.
func environment(home, temp string) []string {
	env := []string{"PATH=" + searchPath(), "HOME=" + home, "TMPDIR=" + temp}
	for _, name := range []string{"LANG", "TZ"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
