package model

import (
	"fmt"
	"net/http"
	"slices"
)

// MaxImage is the largest image of a message, in bytes (YOA-01). Most providers accept less, as
// their adapters say.
const MaxImage = 20 << 20

// Image is an image in a message.
type Image struct {
	Type string `json:"media_type"` // like image/png
	Data []byte `json:"data"`       // in JSON base64
}

// imageTypes are those that models support.
var imageTypes = []string{"image/png", "image/jpeg", "image/webp", "image/gif"}

// ImageType is the media type of an image that begins with these bytes; "" if models do not support
// it, or it is no image.
func ImageType(beginning []byte) string {
	if kind := http.DetectContentType(beginning); slices.Contains(imageTypes, kind) {
		return kind
	}
	return ""
}

// String describes an image by its type and size.
func (i Image) String() string {
	if n := len(i.Data); n >= 1<<20 {
		return fmt.Sprintf("%s of %.1f MiB", i.Type, float64(n)/(1<<20))
	}
	return fmt.Sprintf("%s of %d KiB", i.Type, (len(i.Data)+1023)>>10)
}
