package shell

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// userFolders lists the usual folders of a user's programs, relative to the home or absolute.
var userFolders = []string{
	".local/bin", "bin", "go/bin", ".cargo/bin", ".bun/bin", ".deno/bin", ".npm-global/bin", ".volta/bin", ".nvm/versions/node/*/bin", ".nix-profile/bin",
	"/home/linuxbrew/.linuxbrew/bin", "/opt/homebrew/bin", "/usr/local/go/bin", "/snap/bin",
}

// Elsewhere looks for a program in the PATH of this process and the usual folders of its user, or
// returns "".
func Elsewhere(name string) string {
	if name == "" || strings.ContainsAny(name, `/\`) {
		return ""
	}
	if found, err := exec.LookPath(name); err == nil && filepath.IsAbs(found) {
		return found
	}

	home, err := os.UserHomeDir()
	for _, folder := range userFolders {
		if !filepath.IsAbs(folder) {
			if err != nil {
				continue
			}
			folder = filepath.Join(home, folder)
		}
		all, _ := filepath.Glob(folder) // the pattern is valid
		for _, one := range all {
			if found, err := exec.LookPath(filepath.Join(one, name)); err == nil {
				return found
			}
		}
	}
	return ""
}
