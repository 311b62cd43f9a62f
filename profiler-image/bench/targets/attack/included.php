<?php
return mu(1);
