// Package nofollow opens folders and files in places where agents or other users can create links.
//
// Inside such a folder, any name may have become a link. rouse must not follow these links, because
// its own permissions would apply to the target. Links above such a folder belong to the owner.
// They are followed at each use, so that the owner can change them.
package nofollow
