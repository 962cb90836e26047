package shell

import "os"

// searchPath returns the PATH of commands: the folders of the system.
func searchPath() string {
	root := os.Getenv("SystemRoot")
	return root + `\System32;` + root + `;` + root + `\System32\WindowsPowerShell\v1.0`
}

// environment returns the environment of a command: of the daemon's, only what programs need to
// start.
func environment(home, temp string) []string {
	env := []string{"PATH=" + searchPath(), "HOME=" + home, "USERPROFILE=" + home, "TMPDIR=" + temp, "TEMP=" + temp, "TMP=" + temp}
	for _, name := range []string{"LANG", "TZ", "SystemRoot", "SystemDrive", "PATHEXT", "COMSPEC"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
