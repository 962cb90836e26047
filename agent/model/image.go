package model

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
)

// MaxImage is the greatest picture that a message carries, in bytes (YOA-01). Providers take
// less, each as much as its adapter says.
const MaxImage = 20 << 20

// Image is a picture that is shown to a model.
type Image struct {
	Type string `json:"media_type"` // like image/png
	Data []byte `json:"data"`       // in JSON base64
}

// imageTypes are the kinds of pictures that models see.
var imageTypes = []string{"image/png", "image/jpeg", "image/webp", "image/gif"}

// ImageType is what kind of picture begins like this; "" when it is none that models see.
func ImageType(beginning []byte) string {
	if kind := http.DetectContentType(beginning); slices.Contains(imageTypes, kind) {
		return kind
	}
	return ""
}

// Equal says whether two pictures are the same.
func (i Image) Equal(o Image) bool { return i.Type == o.Type && bytes.Equal(i.Data, o.Data) }

// String names a picture without showing it.
func (i Image) String() string {
	if n := len(i.Data); n >= 1<<20 {
		return fmt.Sprintf("%s of %.1f MiB", i.Type, float64(n)/(1<<20))
	}
	return fmt.Sprintf("%s of %d KiB", i.Type, (len(i.Data)+1023)>>10)
}
