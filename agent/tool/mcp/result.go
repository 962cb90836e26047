package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/text"
)

// Limits of a result. The model reads every result, so its size costs tokens.
const (
	maxText       = 200_000 // characters of all texts together
	maxStructured = 1 << 20 // bytes of JSON
	maxPictures   = 8
	maxPicture    = 4 << 20 // bytes of one picture
	maxLinks      = 100
)

// result is the result of a call in the form that models and playbooks receive.
type result struct {
	Text       *string         `json:"text,omitempty"` // nil if the structured part has the same content
	Structured json.RawMessage `json:"structured,omitempty"`
	Links      []link          `json:"links,omitempty"`
	Files      []keptFile      `json:"files,omitempty"`
}

// keptFile is content other than text, stored as an artifact of the run.
type keptFile struct {
	Name string `json:"name"`
	Type string `json:"media_type,omitempty"`
	Size int    `json:"size"` // bytes
	Path string `json:"path"` // path at which the agent can read it
}

// Keep stores content other than text as an artifact of the call's run. It returns the path at
// which the agent can read it. number counts the files of the call from 1.
type Keep func(ctx context.Context, in tool.Invocation, number int, name, mediaType string, data []byte) (path string, err error)

// link is a resource link of a server. rouse does not fetch it.
type link struct {
	URI  string `json:"uri"`
	Name string `json:"name,omitempty"`
	Type string `json:"media_type,omitempty"`
}

// envelope converts the result of a call. Content of the server can only become text, data, files
// or pictures.
func envelope(server string, d Definition, res *mcp.CallToolResult, redact func(string) string, keep func(number int, name, mediaType string, data []byte) (string, error)) tool.Envelope {
	if res.NeedsInput() {
		return tool.Failure(tool.KindRejected, "the MCP server %s wants something of its caller before it answers, which rouse gives no server", server)
	}

	c := collector{redact: redact, keep: keep}
	c.structure(d, res.StructuredContent)
	repeats := false
	for _, one := range res.Content {
		if t, ok := one.(*mcp.TextContent); ok && !res.IsError && c.repeatsStructure(t.Text) {
			repeats = true
			continue
		}
		c.add(one)
	}

	said := redact(c.text.String())
	if utf8.RuneCountInString(said) > maxText {
		said = text.Truncate(said, maxText)
		c.warn("its text was cut at %d characters", maxText)
	}
	out := result{Text: &said, Structured: c.structured, Links: c.links, Files: c.files}
	if repeats && said == "" {
		out.Text = nil
	}

	e := tool.Success(out, c.warnings...)
	if res.IsError {
		if strings.TrimSpace(said) == "" {
			said = "without a word"
		}
		e = tool.Failure(tool.KindExecutionError, "%s", text.Truncate(said, 4000))
		e.Warnings = c.warnings
	}
	e.Images = c.images
	return e
}

// collector collects the parts of a result.
type collector struct {
	redact     func(string) string
	keep       func(number int, name, mediaType string, data []byte) (string, error)
	text       strings.Builder
	structured json.RawMessage
	plain      any // structured part as sent; nil if there is none
	files      []keptFile
	links      []link
	images     []model.Image
	warnings   []string
}

func (c *collector) warn(format string, args ...any) {
	if len(c.warnings) < 20 {
		c.warnings = append(c.warnings, fmt.Sprintf(format, args...))
	}
}

func (c *collector) say(s string) {
	if c.text.Len() > maxText*utf8.UTFMax {
		return // the text is cut to maxText later
	}
	if c.text.Len() > 0 {
		c.text.WriteByte('\n')
	}
	c.text.WriteString(text.Clean(s))
}

func (c *collector) add(one mcp.Content) {
	switch one := one.(type) {
	case *mcp.TextContent:
		c.say(one.Text)
	case *mcp.ImageContent:
		c.picture("", one.MIMEType, one.Data)
	case *mcp.AudioContent:
		c.file("", one.MIMEType, one.Data)
	case *mcp.ResourceLink:
		c.link(one.URI, one.Name, one.MIMEType)
	case *mcp.EmbeddedResource:
		c.resource(one.Resource)
	default:
		c.warn("a part of a kind that is not known was left out")
	}
}

// picture shows a picture to the model. The type is detected from the data, not taken from the
// server. A picture of an unsupported type or size is kept as a file.
func (c *collector) picture(uri, mediaType string, data []byte) {
	kind := model.ImageType(data)
	if kind == "" || len(data) > maxPicture || len(c.images) == maxPictures {
		c.file(uri, mediaType, data)
		return
	}
	c.images = append(c.images, model.Image{Type: kind, Data: data})
}

// maxFiles limits the files of one result.
const maxFiles = 20

// file stores content other than text as an artifact.
func (c *collector) file(uri, mediaType string, data []byte) {
	if len(data) == 0 {
		c.warn("a part without content was left out")
		return
	}
	if mediaType = text.OneLine(text.Truncate(mediaType, 100)); mediaType == "" {
		mediaType = http.DetectContentType(data)
	}
	name := c.redact(fileName(uri, mediaType))
	left := ""
	switch {
	case c.keep == nil:
		left = "this call keeps no files"
	case len(c.files) == maxFiles:
		left = fmt.Sprintf("a result has at most %d files", maxFiles)
	default:
		path, err := c.keep(len(c.files)+1, name, mediaType, data)
		if err == nil {
			c.files = append(c.files, keptFile{name, c.redact(mediaType), len(data), path})
			return
		}
		left = err.Error()
	}
	c.warn("%s (%s, %s) was left out: %s", name, c.redact(mediaType), text.Size(int64(len(data))), left)
}

// extensions maps common media types to file extensions, for content without a name.
var extensions = map[string]string{
	"application/pdf": ".pdf", "application/zip": ".zip", "application/gzip": ".gz", "application/json": ".json", "application/xml": ".xml", "audio/mpeg": ".mp3", "audio/wav": ".wav", "audio/x-wav": ".wav",
	"audio/ogg": ".ogg", "image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg", "video/mp4": ".mp4", "text/plain": ".txt", "text/csv": ".csv", "text/html": ".html",
}

// fileName returns a file name for content of a server: the last part of its URI, with unsafe
// characters replaced.
func fileName(uri, mediaType string) string {
	name := ""
	if u, err := url.Parse(uri); err == nil {
		name = path.Base(cmp.Or(u.Path, u.Opaque, u.Host))
	}
	name = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.", r) {
			return r
		}
		return '_'
	}, strings.ToValidUTF8(name, "_"))
	name = strings.TrimLeft(name, "._-") // neither hidden nor mistaken for an option
	if over := len(name) - 100; over > 0 {
		name = strings.ToValidUTF8(name[over:], "") // keeps the extension
	}
	base, _, _ := strings.Cut(mediaType, ";")
	ext := cmp.Or(extensions[strings.ToLower(strings.TrimSpace(base))], ".bin")
	switch {
	case name == "":
		return "file" + ext
	case path.Ext(name) == "":
		return name + ext
	}
	return name
}

// repeatsStructure reports whether a text has the same data as the structured part of the result.
// Some libraries wrap a result that is not an object in an object with the key "result".
func (c *collector) repeatsStructure(said string) bool {
	if c.structured == nil {
		return false
	}
	var same any
	isJSON := json.Unmarshal([]byte(said), &same) == nil
	if isJSON && reflect.DeepEqual(same, c.plain) {
		return true
	}
	wrap, ok := c.plain.(map[string]any)
	inner, has := wrap["result"]
	return ok && has && len(wrap) == 1 && (inner == said || isJSON && reflect.DeepEqual(same, inner))
}

func (c *collector) link(uri, name, kind string) {
	if len(c.links) == maxLinks {
		c.warn("more than %d links; the others were left out", maxLinks)
		return
	}
	plain := func(s string) string { return c.redact(text.OneLine(text.Truncate(s, 2000))) }
	c.links = append(c.links, link{plain(uri), plain(name), plain(kind)})
}

// resource adds embedded content.
func (c *collector) resource(r *mcp.ResourceContents) {
	switch {
	case r == nil:
		c.warn("a part without content was left out")
	case len(r.Blob) == 0:
		c.say(r.Text)
	case strings.HasPrefix(r.MIMEType, "text/") && utf8.Valid(r.Blob):
		c.say(string(r.Blob))
	default:
		c.picture(r.URI, r.MIMEType, r.Blob)
	}
}

// structure stores the structured part of a result if it matches the output schema.
func (c *collector) structure(d Definition, v any) {
	if v == nil {
		return
	}
	raw, err := json.Marshal(v)
	switch {
	case err != nil:
		c.warn("the structured part of its result is no JSON, and was left out")
		return
	case len(raw) > maxStructured:
		c.warn("the structured part of its result has %s, and was left out; %s are the most", text.Size(int64(len(raw))), text.Size(maxStructured))
		return
	}

	var plain any
	if err := json.Unmarshal(raw, &plain); err != nil {
		c.warn("the structured part of its result is no JSON, and was left out")
		return
	}
	if wrong := d.misfit(plain); wrong != "" {
		c.warn("the structured part of its result does not fit what the server says of its results, and was left out: %s", wrong)
		return
	}

	// redact works on the JSON text because secrets may be escaped in it.
	redacted := c.redact(string(raw))
	if !json.Valid([]byte(redacted)) {
		c.warn("the structured part of its result held a secret, and was left out")
		return
	}
	c.structured, c.plain = json.RawMessage(redacted), plain
}

// decodeResult decodes the result of a call like the library does.
func decodeResult(raw []byte) (*mcp.CallToolResult, error) {
	var res mcp.CallToolResult
	if err := json.Unmarshal(raw, &res); err != nil {
		return nil, err
	}
	return &res, nil
}
