package agent

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"rouse/agent/tool/web"
	"rouse/internal/text"
)

// readableChars is the maximum number of characters of a file that an approval request shows.
const readableChars = 8000

// readable returns the text of a PDF or an HTML page for an approval request, and only the type of another binary file. kind
// is "" for a file that is shown unchanged.
func (r *Runner) readable(name string, content []byte) (kind, words string) {
	switch ext := strings.ToLower(filepath.Ext(name)); {
	case bytes.HasPrefix(content, []byte("%PDF-")):
		p, err := r.viewer.PDF(context.Background(), bytes.NewReader(content), 1, readableChars)
		if err != nil {
			return "a PDF document that cannot be read", ""
		}
		return "a PDF document of " + text.Plural(p.Pages, "page"), p.Text
	case (ext == ".html" || ext == ".htm") && utf8.Valid(content):
		return "an HTML page", web.Words(string(content))
	case !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0:
		return fmt.Sprintf("binary data of type %s", http.DetectContentType(content)), ""
	}
	return "", ""
}
