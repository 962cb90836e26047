//go:build unix

package shell

import (
	"os"
	"runtime"
)

// searchPath returns the PATH of commands, which contains the system's folders.
func searchPath() string {
	const system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if runtime.GOOS == "darwin" {
		return "/opt/homebrew/bin:" + system
	}
	return system
}

// environment returns the environment of a command. It takes only LANG and TZ from the daemon's
// environment.
func environment(home, temp string) []string {
	env := []string{"PATH=" + searchPath(), "HOME=" + home, "TMPDIR=" + temp}
	for _, name := range []string{"LANG", "TZ"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
