//go:build unix

package shell

import (
	"os"
	"runtime"
)

// searchPath returns the PATH of commands: the folders of the system.
func searchPath() string {
	const system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if runtime.GOOS == "darwin" {
		return "/opt/homebrew/bin:" + system
	}
	return system
}

// environment returns the environment of a command. Of the daemon's it has only LANG and TZ.
func environment(home, temp string) []string {
	env := []string{"PATH=" + searchPath(), "HOME=" + home, "TMPDIR=" + temp}
	for _, name := range []string{"LANG", "TZ"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
