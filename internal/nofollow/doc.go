// Package nofollow opens folders and files for the host in places where somebody else can make names.
//
// A folder that an agent may write, or in which strangers leave files, belongs to its owner only down
// to its own name: what lies below may be a link by now. The host has its owner's rights, so a link
// that it followed there would lead it wherever whoever made it likes. Links above such places are the
// owner's own and are followed, at each use, so that an owner may replace them.
package nofollow
