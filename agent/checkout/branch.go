package checkout

import (
	"fmt"
	"strings"
)

// CheckBranch returns an error if git would reject a branch name or interpret it as something else.
func CheckBranch(name string) error {
	bad := name == "" || name == "HEAD" || name == "@" || len(name) > 200 || strings.HasPrefix(name, "-") || strings.HasPrefix(name, "refs/") || strings.HasSuffix(name, ".") ||
		strings.ContainsAny(name, " ~^:?*[\\\x7f") || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) || strings.Contains(name, "..") || strings.Contains(name, "@{")
	for part := range strings.SplitSeq(name, "/") {
		bad = bad || part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock")
	}
	if bad {
		return fmt.Errorf("checkout: %q is not a name for a branch", name)
	}
	return nil
}
