// Package snapshot turns a directory tree into one immutable archive and back, and keeps such archives in a store. It
// deals in bytes and paths only: who may save or restore is decided elsewhere, before it is called.
//
// # The archive
//
// An archive is a tar stream (PAX headers) compressed with zstd. Everything of the workspace lies below "files/"; the
// last member, "manifest.jsonl", is the manifest. No path of a workspace can therefore collide with it. Every directory
// has a member of its own, its content follows it at once, and names within a directory come in byte order. Restore
// insists on exactly that order: it never needs to remember more than the directories that are open, a member can only
// land in a directory that this archive has made (so never behind a link), and a path cannot occur twice.
//
// The manifest has one JSON object a line. The first is {"schema":"berth.snapshot.v1"}. Then comes a line for each
// member, in the order of the archive: path, kind (file, directory, symlink), mode (octal text; not for links), mtime
// (seconds since 1970 as decimal text with nine digits of fraction), size and sha256 (files), target (links). At the
// end is a line for each path that was not saved: path, kind, "skipped" with the reason, and the target of a link. A path
// or target that is not UTF-8 stands in pathBase64 or targetBase64 instead. The manifest comes last because the hashes
// are known only after the content has gone by: a save reads each file once.
//
// # What survives
//
// Names and content survive byte for byte, as do empty directories, symbolic links, modification times to the
// nanosecond (as far as the file system has them), and the nine permission bits. Hard links become files of their own,
// holes in sparse files become zeros. Owner, group, access control lists, extended attributes and the setuid, setgid and
// sticky bits do not survive: the files belong to whoever restores them. Mode and time of the root directory itself are
// not recorded, since the root is the container and not part of what was saved.
//
// The package needs a Unix system.
package snapshot
