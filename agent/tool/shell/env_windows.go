package shell

import "os"

// searchPath is where programs are looked for: the folders of the system, and never those of the
// daemon's own environment.
func searchPath() string {
	root := os.Getenv("SystemRoot")
	return root + `\System32;` + root + `;` + root + `\System32\WindowsPowerShell\v1.0`
}

// environment is all that a command is given: nothing of the daemon's but language and zone, and
// what no program starts without here.
func environment(home, temp string) []string {
	env := []string{"PATH=" + searchPath(), "HOME=" + home, "USERPROFILE=" + home, "TMPDIR=" + temp, "TEMP=" + temp, "TMP=" + temp}
	for _, name := range []string{"LANG", "TZ", "SystemRoot", "SystemDrive", "PATHEXT", "COMSPEC"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
