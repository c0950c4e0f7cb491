// Package frame keeps the folders of an input root for the next one. To make and to remove a folder
// costs a file system more than everything else that a small root needs, and actions that follow one
// another mostly have the same folders.
//
// A Frame is only folders. After an action everything else is removed, and so is each folder that is
// not as a new one. An action thus finds nothing of an earlier one but the ages and the inode numbers
// of folders.
package frame
