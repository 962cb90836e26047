package shell

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// userFolders are where people install programs for themselves, below their home or from the root.
var userFolders = []string{
	".local/bin", "bin", "go/bin", ".cargo/bin", ".bun/bin", ".deno/bin", ".npm-global/bin", ".volta/bin", ".nvm/versions/node/*/bin", ".nix-profile/bin",
	"/home/linuxbrew/.linuxbrew/bin", "/opt/homebrew/bin", "/usr/local/go/bin", "/snap/bin",
}

// Elsewhere returns the path of a program that the PATH of this process or a usual folder of its user has, "" if there is none.
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
		all, _ := filepath.Glob(folder) // the pattern is not broken
		for _, one := range all {
			if found, err := exec.LookPath(filepath.Join(one, name)); err == nil {
				return found
			}
		}
	}
	return ""
}
