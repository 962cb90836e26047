package tool

import (
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// The names of files that usually hold keys and passwords (OSA-40), in lower case.
var (
	secretNames = []string{"credentials", "credentials.json", "credentials.csv", "credentials.ini", "credentials.toml", "credentials.xml", "credentials.y*ml", ".git-credentials", ".netrc", "_netrc", ".pgpass", ".htpasswd", ".npmrc", ".pypirc",
		"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.age-key"}
	secretFolders  = []string{".ssh", ".aws", ".gnupg", ".kube", ".docker"}
	secretPaths    = []string{".git/config", ".git/hooks"} // the first holds tokens, the second is run
	harmlessEnding = []string{".example", ".sample", ".template", ".dist"}
)

// IsSecretPath reports whether a path within a root names a file that is refused: .env and its
// variants, keys, credentials, and what git would run. An owner grants a secret by its own name.
func IsSecretPath(rel string) bool {
	parts := strings.Split(strings.ToLower(filepath.ToSlash(rel)), "/")
	for i, part := range parts {
		// Windows drops dots and blanks at the end of a name: ".ssh ." opens .ssh there.
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

// maxSecretSearch bounds the entries that are searched for secrets before a program starts. Folders
// beyond it are hidden as a whole.
const maxSecretSearch = 250_000

// HideSecrets hides files with secrets, by their names, from programs in all folders that the run
// may only read. A file that is granted by its own name is not hidden.
func (r *Roots) HideSecrets() { r.hideSecrets = true }

// secretMasks lists the files and folders with secrets where a program may only read.
func (r *Roots) secretMasks() (out []string) {
	seen := 0
	for _, g := range r.roots {
		if g.Write || g.File || g.OmitFromMessages || r.insideWritable(g) {
			continue
		}

		// A folder that cannot be read is closed to the program, too.
		_ = filepath.WalkDir(g.Path, func(path string, d fs.DirEntry, err error) error {
			rel, _ := below(g.Path, path)
			switch {
			case err != nil:
				return fs.SkipDir
			case rel == "":
				return nil
			case slices.ContainsFunc(r.roots, func(one root) bool { return one.Path == path }): // granted by its own name
				if d.IsDir() {
					return fs.SkipDir // it is searched by itself, or may be written
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
			// The name of a folder matters if it makes secrets of all files in it.
			if seen > maxSecretSearch || IsSecretPath(filepath.Join(rel, "file")) {
				out = append(out, path)
				return fs.SkipDir
			}
			return nil
		})
	}
	return out
}

// reaches reports whether a program finds the file of an entry. Links out of the roots lead
// nowhere.
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
