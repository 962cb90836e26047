package skills

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// Fingerprint is a fingerprint of a root of skills, or of one skill: it stays the same while the names,
// sizes and times of their files do. It reads none of them, and has the limits of Discover, so that
// it can be polled for changes.
func Fingerprint(root string) string {
	h := sha256.New()
	w := walker{catalog: &Catalog{}, root: Root{Path: root}, visited: map[string]bool{}, programs: map[string]bool{}}
	add := func(dir string, names ...string) {
		fmt.Fprintf(h, "%q", dir)
		for _, name := range names {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
				fmt.Fprintf(h, " %s %d %d", name, info.Size(), info.ModTime().UnixNano())
			}
		}
		fmt.Fprintln(h)
	}
	w.onSkill = func(dir string) { add(dir, append([]string{manifestFile, moduleFile, docsFile}, fileNames...)...) }

	w.onSkill(root)                                           // the root may be a skill itself, which walk does not look at
	add(root, indexFile, filepath.Join(skillsDir, indexFile)) // their tags
	w.walk()
	return hex.EncodeToString(h.Sum(nil))
}
