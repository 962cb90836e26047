package tool

import (
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Names of files that usually hold keys and passwords, in lower case.
var (
	secretNames = []string{"credentials", "credentials.json", "credentials.csv", "credentials.ini", "credentials.toml", "credentials.xml", "credentials.y*ml", ".git-credentials", ".netrc", "_netrc", ".pgpass", ".htpasswd", ".npmrc", ".pypirc",
		"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.age-key"}
	secretFolders  = []string{".ssh", ".aws", ".gnupg", ".kube", ".docker"}
	secretPaths    = []string{".git/config", ".git/hooks"} // the first may hold tokens; git executes the second
	harmlessEnding = []string{".example", ".sample", ".template", ".dist"}
)

// IsSecretPath reports whether a path within a root names a secret: .env and its variants, keys,
// credentials, and the configuration and hooks of git. Such a file is refused unless the owner
// grants it by its own path.
func IsSecretPath(rel string) bool {
	parts := strings.Split(strings.ToLower(filepath.ToSlash(rel)), "/")
	for i, part := range parts {
		// Windows ignores trailing dots and spaces of a name: ".ssh ." opens .ssh.
		if slices.Contains(secretFolders, strings.TrimRight(part, ". ")) {
			return true
		}
		if i > 0 && slices.Contains(secretPaths, parts[i-1]+"/"+part) {
			return true
		}
	}

	name := strings.TrimRight(parts[len(parts)-1], ". ")
	if slices.ContainsFunc(harmlessEnding, func(end string) bool { return strings.HasSuffix(name, end) }) {
		return false
	}
	if strings.HasPrefix(name, ".env") {
		return name == ".env" || name[4] == '.' || name[4] == '-' || name[4] == '_' || name == ".envrc"
	}

	return slices.ContainsFunc(secretNames, func(glob string) bool {
		ok, err := path.Match(glob, name)
		return ok || err != nil
	})
}

// maxSecretSearch is the maximum number of entries that are searched for secrets before a program
// starts. Folders beyond the limit are hidden as a whole.
const maxSecretSearch = 250_000

// HideSecrets hides files with names of secrets from programs, in all folders that are read-only
// for the run. A file granted by its own path is not hidden.
func (r *Roots) HideSecrets() { r.hideSecrets = true }

// secretMasks returns the files and folders with secrets in read-only roots.
func (r *Roots) secretMasks() (out []string) {
	seen := 0
	for _, g := range r.roots {
		if g.Write || g.File || g.OmitFromMessages || r.insideWritable(g) {
			continue
		}

		// A folder that rouse cannot read is not readable for the program either.
		_ = filepath.WalkDir(g.Path, func(path string, d fs.DirEntry, err error) error {
			rel, _ := below(g.Path, path)
			switch {
			case err != nil:
				return fs.SkipDir
			case rel == "":
				return nil
			case slices.ContainsFunc(r.roots, func(one root) bool { return one.Path == path }): // granted by its own path
				if d.IsDir() {
					return fs.SkipDir // searched as its own root, or writable
				}
				return nil
			}

			seen++
			if !d.IsDir() {
				if IsSecretPath(rel) && r.reaches(path, d) {
					out = append(out, path)
				}
				return nil
			}
			// Hide the folder if its name makes all files in it secrets.
			if seen > maxSecretSearch || IsSecretPath(filepath.Join(rel, "file")) {
				out = append(out, path)
				return fs.SkipDir
			}
			return nil
		})
	}
	return out
}

// reaches reports whether a program can open the file of an entry. It returns false for a link out
// of the roots.
func (r *Roots) reaches(path string, d fs.DirEntry) bool {
	if d.Type() != fs.ModeSymlink {
		return true
	}
	actual, err := filepath.EvalSymlinks(path)
	return err == nil && slices.ContainsFunc(r.roots, func(g root) bool {
		_, in := below(g.Path, actual)
		return in
	})
}
