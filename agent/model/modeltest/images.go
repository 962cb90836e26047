package modeltest

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rouse/agent/model"
)

// Encodings of an image: a data URL, an object with a type, or base64 in a list for Ollama.
var (
	typedImage    = regexp.MustCompile(`(?:data:|"(?:media_type|mimeType)":")(image/[a-z]+)(?:;base64,|","data":")([A-Za-z0-9+/=]*)`)
	untypedImages = regexp.MustCompile(`"images":\[([^\]]*)\]`)
)

// imagesOf returns the images of a request, in order.
func imagesOf(body []byte) (out []model.Image) {
	add := func(kind, text string) {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			data = []byte(err.Error())
		}
		out = append(out, model.Image{Type: kind, Data: data})
	}

	for _, m := range typedImage.FindAllSubmatch(body, -1) {
		add(string(m[1]), string(m[2]))
	}

	for _, list := range untypedImages.FindAllSubmatch(body, -1) {
		for text := range strings.SplitSeq(string(list[1]), ",") {
			add("", strings.Trim(text, `"`))
		}
	}

	return out
}

// imageProblem returns the problem with the images of a request, or "".
func (t Turn) imageProblem(body []byte) string {
	is := imagesOf(body)
	same := slices.EqualFunc(is, t.WantImages, func(a, b model.Image) bool {
		return string(a.Data) == string(b.Data) && (a.Type == b.Type || a.Type == "")
	})
	switch {
	case t.NoImages && len(is) > 0:
		return "Image input is not supported by this model"
	case len(t.WantImages) > 0 && !same:
		return fmt.Sprintf("the request has %d pictures (%v) in the place of %v", len(is), is, t.WantImages)
	}

	return ""
}

// images checks that the images of a user or a tool arrive unchanged. A model without support for
// images must get the same messages without them from then on.
func images(t *testing.T, start Start) {
	png, jpeg := model.Image{Type: "image/png", Data: []byte("\x89PNG\r\n\x1a\n\x00")}, model.Image{Type: "image/jpeg", Data: []byte("\xff\xd8\xff\xe0")}
	webp, bmp := model.Image{Type: "image/webp", Data: []byte("RIFF\x00\x00\x00\x00WEBPVP")}, model.Image{Type: "image/bmp", Data: []byte("BM")}
	conversation := func(t *testing.T, turn Turn) Answer {
		p := start(t, Script{{Calls: []model.Call{query, notify}, Text: "I look."}, turn, turn, turn}, Limits{})
		r := question
		r.Messages = []model.Message{{Role: model.RoleUser, Text: "What is this?", Images: []model.Image{png, bmp}}}
		first := Ask(t, t.Context(), p, r)
		wantCalls(t, first, query, notify)
		r = withResults(t, r, first)
		n := len(r.Messages)
		r.Messages[n-2].Images, r.Messages[n-1].Images = []model.Image{jpeg}, []model.Image{webp}
		if a := Ask(t, t.Context(), p, r); a.Err != nil || a.Text != turn.Text {
			t.Errorf("answer: %+v", a)
		}

		return Ask(t, t.Context(), p, r)
	}

	for name, turn := range map[string]Turn{"shown": {Text: "I see.", WantImages: []model.Image{png, jpeg, webp}}, "to the blind": {Text: "I see nothing.", NoImages: true}} {
		t.Run(name, func(t *testing.T) {
			if a := conversation(t, turn); a.Err != nil || a.Text != turn.Text {
				t.Errorf("answer: %+v", a)
			}
		})
	}
}
