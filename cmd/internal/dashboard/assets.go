package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"
)

//go:embed assets
var embedded embed.FS

// assets holds the static files. Their names contain a hash of their content, so browsers can cache
// them forever.
type assets struct {
	files map[string][]byte // by hashed name
	names map[string]string // hashed name by plain name
}

var assetTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

func newAssets() (*assets, error) {
	a := &assets{files: map[string][]byte{}, names: map[string]string{}}
	entries, err := embedded.ReadDir("assets")
	if err != nil {
		return nil, fmt.Errorf("the assets of the pages cannot be read: %w", err)
	}

	for _, e := range entries {
		content, err := embedded.ReadFile("assets/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("the assets of the pages cannot be read: %w", err)
		}

		sum := sha256.Sum256(content)
		ext := path.Ext(e.Name())
		hashed := strings.TrimSuffix(e.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		a.files[hashed], a.names[e.Name()] = content, hashed
	}
	return a, nil
}

// path returns the address of an asset.
func (a *assets) path(name string) string { return "/assets/" + a.names[name] }

func (a *assets) serve(w http.ResponseWriter, r *http.Request) {
	content, ok := a.files[r.PathValue("file")]
	if !ok {
		http.NotFound(w, r)
		return
	}

	h := w.Header()
	h.Set("Content-Type", assetTypes[path.Ext(r.PathValue("file"))])
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(content) // fails only if the client has disconnected
}
