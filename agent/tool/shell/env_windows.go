package shell

import "os"

// searchPath returns the PATH of commands, which contains the system's folders.
func searchPath() string {
	root := os.Getenv("SystemRoot")
	return root + `\System32;` + root + `;` + root + `\System32\WindowsPowerShell\v1.0`
}

// environment returns the environment of a command. It takes only the variables that programs need
// to start from the daemon's environment.
func environment(home, temp string) []string {
	env := []string{"PATH=" + searchPath(), "HOME=" + home, "USERPROFILE=" + home, "TMPDIR=" + temp, "TEMP=" + temp, "TMP=" + temp}
	for _, name := range []string{"LANG", "TZ", "SystemRoot", "SystemDrive", "PATHEXT", "COMSPEC"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
