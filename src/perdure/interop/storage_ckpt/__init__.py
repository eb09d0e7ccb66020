"""storage-ckpt, the checkpoint format of the Mojo library noeira: versions 2 and 3 are read, version 3 is written."""
