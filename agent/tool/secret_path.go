package tool

import (
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
