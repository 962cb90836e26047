package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed assets
var embedded embed.FS

// assets are the files beside the pages. Their content is in their names, so browsers keep them for ever.
type assets struct {
	files map[string]asset  // by the name with the hash
	names map[string]string // that name by the plain one
}

// asset is a file as it is, and compressed as far as it goes: that is done when it is first asked for.
type asset struct {
	plain  []byte
	packed func() ([]byte, error)
}

var assetTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

func newAssets() (*assets, error) {
	a := &assets{files: map[string]asset{}, names: map[string]string{}}
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
		packed := sync.OnceValues(func() ([]byte, error) { return pack(content) })
		a.files[hashed], a.names[e.Name()] = asset{content, packed}, hashed
	}
	return a, nil
}

func pack(content []byte) ([]byte, error) {
	var out bytes.Buffer
	packed, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = packed.Write(content)
	err = errors.Join(err, packed.Close())
	return out.Bytes(), err
}

// path is where an asset is fetched.
func (a *assets) path(name string) string { return "/assets/" + a.names[name] }

func (a *assets) serve(w http.ResponseWriter, r *http.Request) {
	found, ok := a.files[r.PathValue("file")]
	if !ok {
		http.NotFound(w, r)
		return
	}

	h := w.Header()
	h.Set("Content-Type", assetTypes[path.Ext(r.PathValue("file"))])
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	content := found.plain
	if readsGzip(r) {
		packed, err := found.packed()
		if err == nil { // else it is sent as it is
			h.Set("Content-Encoding", "gzip")
			content = packed
		}
	}
	_, _ = w.Write(content) // only who asked can have left
}
